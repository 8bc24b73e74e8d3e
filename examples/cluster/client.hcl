# A client of the three servers:  caravan agent -config client.hcl -config secure.hcl      (as root)
# 192.0.2.21 stands for the address of this host. A client needs one server to start; the servers send it the others.

name       = "client-1"
datacenter = "dc1"
data_dir   = "/var/lib/caravan"
bind_addr  = "192.0.2.21"
log_level  = "INFO"

client {
  enabled = true
  servers = ["192.0.2.11:4647", "192.0.2.12:4647", "192.0.2.13:4647"]
}

# Tasks of raw_exec run as root without isolation: off unless enabled.
plugin "raw_exec" {
  config {
    enabled = true
  }
}
