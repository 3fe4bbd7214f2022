/** Where a server listens. */
import type { Option } from 'commander';
import { flag, numberOption } from './builders.js';

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
