//! Owner of a model and the mailboxes of its targets.
