module github.com/rackbus/rackbus/services/compute-agent

go 1.26
