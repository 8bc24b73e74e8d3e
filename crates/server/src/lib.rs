//! Broker, workers, planner, heartbeats, the volume reconciler, and the server's endpoints.
