"""The artifact store, in S3 or a folder: pieces, manifests, index. The only place that talks to the object store."""
