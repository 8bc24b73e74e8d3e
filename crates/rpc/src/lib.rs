//! The agents' own transport: gRPC framing over TCP with a MessagePack codec, one role byte per connection, reversed connections, an in-process shortcut.
