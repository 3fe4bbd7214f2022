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

// without a listener these would end the process before it can restore the terminal
const terminateListeners = new Set<() => void>();
for (const [signal, code] of [
  ['SIGTERM', exitCodes.terminated],
  ['SIGHUP', exitCodes.hungUp],
] as const) {
  process.on(signal, () => {
    if (signal === 'SIGTERM' && terminateListeners.size > 0) for (const listener of terminateListeners) listener();
    else process.exit(code);
  });
}

const download: Download = async ({ repo, revision, file }, { signal, mmproj, onProgress }) => {
  const { downloadRepo } = await import('@winnow/hub/node');
  const found = await downloadRepo({
    ...{ repo, signal, mmproj },
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
  router: () => import('@winnow/server/router'),
  download,
  hubCache: () => import('@winnow/hub/node'),
  onInterrupt: (listener) => {
    interruptListeners.add(listener);
    return () => interruptListeners.delete(listener);
  },
  onTerminate: (listener) => {
    terminateListeners.add(listener);
    return () => terminateListeners.delete(listener);
  },
  onExit: (listener) => {
    process.on('exit', listener);
    return () => process.off('exit', listener);
  },
  exitNow: (code) => process.exit(code),
  randomSeed: () => randomInt(2 ** 32),
  measurePeaks: async (numThreads) => {
    const { measurePeaks } = await import('@winnow/backend-wasm');
    return measurePeaks(numThreads === undefined ? {} : { numThreads });
  },
  version,
});
