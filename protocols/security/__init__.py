"""Which part something is from: certificates and TLS, keys of parts, sealed frames, and which were seen before."""
