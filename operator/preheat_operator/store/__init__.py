"""The artifact store in S3: pieces, manifests, index. The only place that talks to the object store."""
