package main

import (
	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/rdma/verbs"
)

func newVerbs() rdma.Provider { return verbs.New() }
func newTCP() rdma.Provider   { return tcp.New() }
