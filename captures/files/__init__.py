"""Capture files: pcap and pcapng, frame by frame."""
