export { openRedisJobStore, type RedisJobStoreOptions } from './redis-job-store.node.js';
