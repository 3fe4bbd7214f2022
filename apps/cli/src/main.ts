#!/usr/bin/env node
/** Entry point: connects the commands with this process. */
import { randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { main } from './cli.js';
import { exitCodes } from './errors/errors.js';
import type { Download } from './terminal/io.js';

const interruptListeners = new Set<() => void>();
process.on('SIGINT', () => {
  if (interruptListeners.size === 0) process.exit(exitCodes.interrupted);
  for (const listener of interruptListeners) listener();
});

const download: Download = async ({ repo, revision, file }, { signal, onProgress }) => {
  const { downloadRepo } = await import('@winnow/hub/node');
  const found = await downloadRepo({
    repo,
    signal,
    ...(revision === undefined ? {} : { revision }),
    ...(file === undefined ? {} : { gguf: file }),
    onProgress: ({ file: name, allLoadedBytes, allTotalBytes }) =>
      onProgress({ file: name, loadedBytes: allLoadedBytes, totalBytes: allTotalBytes }),
  });
  return found.ggufFile ?? found.path;
};

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

process.exitCode = await main(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  engine: () => import('@winnow/engine'),
  server: () => import('@winnow/server'),
  download,
  hubCache: () => import('@winnow/hub/node'),
  onInterrupt: (listener) => {
    interruptListeners.add(listener);
    return () => interruptListeners.delete(listener);
  },
  onTerminate: (listener) => {
    process.on('SIGTERM', listener);
    return () => process.off('SIGTERM', listener);
  },
  exitNow: (code) => process.exit(code),
  randomSeed: () => randomInt(2 ** 32),
  measurePeaks: async (numThreads) => {
    const { measurePeaks } = await import('@winnow/backend-wasm');
    return measurePeaks(numThreads === undefined ? {} : { numThreads });
  },
  version,
});
