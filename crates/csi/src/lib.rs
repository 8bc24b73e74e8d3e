//! A typed CSI client: deadlines per class of call, classification of status codes, redaction of secrets.
