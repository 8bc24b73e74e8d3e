# The server of an installation with one server and many clients:
#   caravan agent -config examples/agent-server.hcl
# 192.0.2.10 stands for the address under which the clients reach this host.

datacenter = "dc1"
data_dir   = "/var/lib/caravan" # the whole state; keep it on a disk that honours fsync
bind_addr  = "0.0.0.0"
log_level  = "INFO"

# Without tls and acl blocks nothing is encrypted and the API requires no token: keep both ports inside a trusted network.
ports {
  http = 4646 # the API
  rpc  = 4647 # calls between agents; clients connect to this one, servers never connect to clients
}

advertise {
  http = "192.0.2.10"
  rpc  = "192.0.2.10"
}

server {
  enabled          = true
  bootstrap_expect = 1 # one server; examples/cluster has the files for three
}
