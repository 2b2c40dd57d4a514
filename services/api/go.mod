module github.com/rackbus/rackbus/services/api

go 1.26
