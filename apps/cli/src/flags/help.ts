/** Help in two lengths: `--help` shows the common flags, `--help-all` every flag. */
import { Help, type Command, type Option } from 'commander';
import { flag, isAdvanced } from './builders.js';

const completeHelp = new WeakSet<Command>();

/** Hides advanced flags from the text of `--help`. Suggestions for an unknown flag, which have no width, consider all of them. */
export function visibleOptions(this: Help, command: Command): Option[] {
  const visible = Help.prototype.visibleOptions.call(this, command);
  return completeHelp.has(command) || this.helpWidth === undefined
    ? visible
    : visible.filter((option) => !isAdvanced(option));
}

/** The command as it is typed, such as `winnow eval h2o`. */
function nameOf(command: Command): string {
  return command.parent === null ? command.name() : `${nameOf(command.parent)} ${command.name()}`;
}

/** Sets description and examples, and adds `--help-all`, visible where flags are hidden. Call it after all flags were added. */
export function describe(command: Command, description: string, examples: string): Command {
  const numHidden = command.options.filter((option) => isAdvanced(option) && !option.hidden).length;
  command.description(description).helpOption('-h, --help', numHidden > 0 ? 'print this help' : 'print help');
  command.addOption(flag('--help-all', 'print help with all flags').hideHelp(numHidden === 0));
  command.on('option:help-all', () => {
    completeHelp.add(command);
    command.help();
  });
  if (numHidden > 0) {
    const more = () => `\n${numHidden} more ${numHidden === 1 ? 'flag' : 'flags'}: ${nameOf(command)} --help-all`;
    command.addHelpText('after', () => (completeHelp.has(command) ? '' : more()));
  }
  return command.addHelpText('after', examples);
}
