"""What is between the nodes: the clock and its events, links and connections, a sniffer and a trace."""
