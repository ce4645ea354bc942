"""From frames to the bytes that each side sent: links, IP, UDP, TCP; and the way back."""
