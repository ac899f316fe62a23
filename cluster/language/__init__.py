"""FjordSQL: text -> resolved, typed logical algebra. It imports none of the cluster's other folders but expressions."""
