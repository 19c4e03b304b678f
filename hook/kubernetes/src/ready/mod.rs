//! Refuses to serve where a container of a claim would start without its slice.
//! Touches: the API server, the engine's configuration, the hook's file, by reading them.
