"""The binary protocol of Microsoft Message Queuing, [MS-MQQB]: no sockets, no clock, no disk."""
