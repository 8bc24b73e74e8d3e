# Server 2 of 3:  caravan agent -config server-2.hcl -config secure.hcl
# 192.0.2.11, .12 and .13 stand for the addresses of the three servers. The three files differ in `name` and in this
# server's own address.

name       = "server-2"
datacenter = "dc1"
data_dir   = "/var/lib/caravan" # the whole state; keep it on a disk of its own that honours fsync
bind_addr  = "192.0.2.12"
log_level  = "INFO"

ports {
  http = 4646 # the API, for users
  rpc  = 4647 # calls between agents, the replicated log included
  serf = 4648 # the membership of servers (TCP)
}

server {
  enabled          = true
  bootstrap_expect = 3 # found the cluster once three servers have found each other

  server_join {
    retry_join = ["192.0.2.11", "192.0.2.12", "192.0.2.13"]
  }
}
