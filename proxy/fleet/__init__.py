"""All motes of a proxy: their streams, the programs chosen for them, the batches made of their tuples."""
