export { openPostgresJobStore, type PostgresJobStoreOptions } from './postgres-job-store.node.js';
