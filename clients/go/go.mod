module vreplica.dev/scheduler

go 1.24
