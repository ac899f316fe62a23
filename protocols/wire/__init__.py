"""What is sent between machines: frames, packets, batches, demands, programs, topics."""
