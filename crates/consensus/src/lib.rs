//! openraft with its log and votes in redb and snapshots as files: propose, barrier, membership.
