"""FjordSQL: text -> resolved, typed logical algebra. The leftmost folder of the cluster: imports none of the others."""
