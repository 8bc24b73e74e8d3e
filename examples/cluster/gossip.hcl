# The key of the membership, the same on all servers; clients do not need it. `caravan operator gossip keyring generate`
# makes one. It counts at the first start only: later, `caravan operator gossip keyring` changes it on all servers.

server {
  encrypt = "replace with a key"
}
