"""What several parts of the simulator use, and no part of it owns."""
