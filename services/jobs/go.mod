module github.com/rackbus/rackbus/services/jobs

go 1.26.0

require (
	github.com/prometheus/client_golang v1.25.0
	github.com/rackbus/rackbus/pkg v0.0.0
	github.com/rackbus/rackbus/proto v0.0.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
	google.golang.org/protobuf v1.36.12
	pgregory.net/rapid v1.3.0
)

replace (
	github.com/rackbus/rackbus/pkg => ../../pkg
	github.com/rackbus/rackbus/proto => ../../proto
)
