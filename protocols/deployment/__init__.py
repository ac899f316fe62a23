"""What `fjord security` makes for a deployment: certificates, rules of access, and a folder for each machine."""
