export { repoRoot, sharedDataPath } from './shared-data.js';
export { FakeHub, gitSha1, sha256, type FakeRepo, type LoggedRequest } from './fake-hub.js';
export { serveBytes, type TestServer } from './serve-bytes.js';
export { fastClock } from './fast-clock.js';
export { characterAt, lastCharacter } from './characters.js';
export { sampled, testCoverage } from './coverage.js';
export { sourceArguments } from './source-process.js';
export {
  concat,
  extremeInteger,
  mutateBytes,
  mutateJson,
  mutateJsonText,
  mutateText,
  pick,
  writeInteger,
  type JsonTree,
  type Random,
} from './mutate.js';
export { haproxyProgram, startHaproxy, type Haproxy } from './haproxy.js';
export { findProgram, freePort } from './programs.js';
export { redisProgram, startRedisServer, type RedisServer } from './redis-server.js';
export { failure as s3Failure } from './s3/additions.js';
export { startS3Server, type S3Fault, type S3Server } from './s3/server.js';
export { postgresProgram, startPostgresServer, type PostgresServer } from './postgres-server.js';
