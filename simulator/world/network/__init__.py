"""Between the nodes: the clock and its events, links and connections, what a sniffer sees and a trace keeps."""
