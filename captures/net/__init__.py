"""Turns frames into the bytes that each side sent, through links, IP, UDP and TCP, and turns bytes into frames."""
