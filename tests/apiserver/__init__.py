"""A bare API server (etcd and kube-apiserver, nothing else) for tests of schemas, rights and injection.

It is of the same build as the test cluster's, boots in seconds, and belongs to one test process: its policies and CRDs
cannot disturb the cluster that other tests share.
"""
