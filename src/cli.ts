/** Where units and scripts of former versions find the command. */
import '../cli/main.ts';
