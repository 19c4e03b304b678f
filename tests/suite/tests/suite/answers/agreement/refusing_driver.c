/* A driver that loads, and is told by the kernel that there is no GPU. */

int cuInit(unsigned flags)
{
	(void)flags;
	return 100;
}

int nvmlInit_v2(void)
{
	return 9;
}
