# The configuration of the Caravan agent. All *.hcl and *.json files in /etc/caravan.d are read in the order of their
# names; later files override earlier ones. Check them with: caravan config validate /etc/caravan.d
# Then start the agent with: systemctl enable --now caravan

datacenter = "dc1"
data_dir   = "/var/lib/caravan"
log_level  = "INFO"

# The address on which the agent listens. Loopback is safe; other machines need an address that they reach, and then
# TLS and access control belong in this file too.
bind_addr = "127.0.0.1"

# The addresses under which other agents and clients find this agent. An agent that listens on a private address
# advertises that address; loopback must be named here, because no other machine reaches it.
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}

# A server. With one server, the cluster has no redundancy.
server {
  enabled          = true
  bootstrap_expect = 1
}

# A client runs tasks. It needs root.
client {
  enabled = true

  # Addresses of the servers, if they are on other machines.
  # servers = ["192.0.2.10:4647"]
}

# CSI plugins of type node and monolith need root on the host. Under exec they get it only with this setting.
# plugin "exec" {
#   config {
#     allow_privileged_plugins = true
#   }
# }

# Tasks of raw_exec run as root without isolation.
# plugin "raw_exec" {
#   config {
#     enabled = true
#   }
# }

# Access control: after the start, `caravan acl bootstrap` creates the first token.
# acl {
#   enabled = true
# }
