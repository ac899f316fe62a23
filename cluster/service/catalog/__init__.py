"""What queries may read: streams, relations, sensors."""
