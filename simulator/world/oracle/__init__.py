"""What has happened in a world, and what must hold in every one."""
