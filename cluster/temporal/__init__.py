"""What held for how long: samples of one value become intervals, eagerly or lazily, exactly or within a memory."""
