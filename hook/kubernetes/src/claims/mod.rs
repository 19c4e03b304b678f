//! A claim becomes a CDI file.
//! Touches: the CDI folder; the API server, by reading.
