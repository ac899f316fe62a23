"""Which part a frame is from: keys of parts, sealed frames, and which were seen before."""
