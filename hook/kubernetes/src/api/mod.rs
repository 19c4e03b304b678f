//! The API server
//! Touches:  credentials, requests, errors.:the API server.
