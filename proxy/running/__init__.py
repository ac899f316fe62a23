"""What runs: frames in, instructions out, batches to the cluster; all asyncio is here."""
