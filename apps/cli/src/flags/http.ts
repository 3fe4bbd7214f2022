/** What servers and routers have in common: where they listen, and their limits. */
import type { Option } from 'commander';
import { flag, numberOption, numberRules, sizeOption } from './builders.js';

/** Times in seconds. */
export interface HttpFlags {
  readonly port: number;
  readonly host: string;
  readonly apiKey?: readonly string[];
  readonly sharePrefixes?: boolean;
  readonly requestTimeout?: number;
  readonly stallTimeout?: number;
  readonly keepAlive?: number;
  readonly maxBody?: number;
  readonly maxConnections?: number;
  readonly grace: number;
  readonly logFormat?: 'text' | 'json';
}

const { count, fromZero, positive } = numberRules;
const port = {
  integer: true,
  expected: 'a port from 0 to 65535',
  isValid: (value: number) => value >= 0 && value < 65536,
};

export function addressOptions(): Option[] {
  return [
    numberOption('--port <n>', 'port to listen on; 0 selects a free port', port).default(8080),
    flag('--host <address>', 'address to listen on; 0.0.0.0: all interfaces').default('127.0.0.1', '127.0.0.1'),
  ];
}

/** Defaults, as help texts say them. */
interface LimitDefaults {
  readonly requestTimeout: number;
  readonly keepAlive: number;
  readonly maxBody: string;
  readonly maxConnections: number;
}

export function limitOptions(defaults: LimitDefaults): Option[] {
  const absent = (name: keyof LimitDefaults): string => `(default: ${defaults[name]})`;
  const idle = 'idle seconds before a stream gets a keep-alive comment';
  return [
    numberOption('--request-timeout <s>', `total seconds a request may take ${absent('requestTimeout')}`, positive),
    numberOption('--stall-timeout <s>', 'seconds a client may leave its stream unread (default: 60)', positive),
    numberOption('--keep-alive <s>', `${idle} ${absent('keepAlive')}`, positive),
    sizeOption('--max-body <size>', `maximum size of a request body ${absent('maxBody')}`),
    numberOption('--max-connections <n>', `maximum number of open connections ${absent('maxConnections')}`, count),
    numberOption('--grace <s>', 'seconds that running requests get on shutdown', fromZero).default(30),
  ];
}

export function millisecondsOf(seconds: number | undefined): number | undefined {
  return seconds === undefined ? undefined : Math.max(1, Math.round(seconds * 1000));
}

/** Options of servers and routers; undefined where their defaults hold. */
interface HttpLimits {
  readonly requestTimeoutMs: number | undefined;
  readonly stallTimeoutMs: number | undefined;
  readonly keepAliveMs: number | undefined;
  readonly maxBodyBytes: number | undefined;
  readonly maxConnections: number | undefined;
}

export function httpLimitsOf(flags: HttpFlags): HttpLimits {
  return {
    requestTimeoutMs: millisecondsOf(flags.requestTimeout),
    stallTimeoutMs: millisecondsOf(flags.stallTimeout),
    keepAliveMs: millisecondsOf(flags.keepAlive),
    maxBodyBytes: flags.maxBody,
    maxConnections: flags.maxConnections,
  };
}
