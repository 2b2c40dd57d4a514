module github.com/rackbus/rackbus/services/standalone

go 1.26
