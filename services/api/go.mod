module github.com/rackbus/rackbus/services/api

go 1.26.0

replace (
	github.com/rackbus/rackbus/pkg => ../../pkg
	github.com/rackbus/rackbus/proto => ../../proto
)

require (
	github.com/rackbus/rackbus/pkg v0.0.0
	github.com/rackbus/rackbus/proto v0.0.0
)
