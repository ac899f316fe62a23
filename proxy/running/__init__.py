"""The asyncio part of the proxy: frames in, instructions out, batches to the cluster."""
