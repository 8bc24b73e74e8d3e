# A client: runs tasks, as many hosts as you like, also behind NAT.
#   caravan agent -config examples/agent-client.hcl      (as root)
# 192.0.2.11 stands for this host, 192.0.2.10 for the server.

datacenter = "dc1"
data_dir   = "/var/lib/caravan"
bind_addr  = "0.0.0.0"
log_level  = "INFO"

advertise {
  http = "192.0.2.11"
}

client {
  enabled = true
  servers = ["192.0.2.10:4647"]
}

# CSI plugins of type node and monolith need root on the host; under exec they get it only with this setting.
plugin "exec" {
  config {
    allow_privileged_plugins = true
  }
}

# Tasks of raw_exec run as root without isolation: off unless enabled.
plugin "raw_exec" {
  config {
    enabled = true
  }
}
